"""scenarios/report"""
